"""The curator's server: datasets that analysts may ask, one door for everybody, and nobody who can overspend.

A request passes these rooms:

1. `app`: an ASGI application. It limits sizes, times and rates, finds out who asks (`ledger.access`), and looks up in
   the one table of `routes` whether they may.
2. `handlers/`: one function for each call, from JSON to JSON.
3. `curator`: what the calls do, without HTTP: preview, try, ask, and the steward's work. Pages and agents use it too.
4. `tables` opens the data, `dummy` makes public stand-ins of it, `state` keeps what the server must not forget.
"""
