"""Pages for people: one for each role, rendered on the server, without scripts."""

from discreet.apps.server.pages.site import page_routes

__all__ = ["page_routes"]
