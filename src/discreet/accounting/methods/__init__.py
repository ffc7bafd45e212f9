"""The methods that turn privacy losses into δ(ε) or ε(δ), and the choice among them.

A question travels through these modules (`tight` leads the way):

1. event → `losses.collapse`: the ways in which one unit can meet it, with equal parts counted.
2. way → `losses.of_events`: its privacy losses in each direction, from above and from below.
3. losses → `choose`: which method takes them.
4. method → `single` (a formula), `fourier` (a smooth loss), `jumps` (rare large losses), `smoothing` (many different
   losses), `grid` (any other), `chernoff` (moments alone), `concentration` (a lower end from two moments).
5. method → certified bounds on the δ or the ε that the `Target` asks for.
6. bounds → `Interval`: the worst over directions and ways. Its upper end is charged.
"""
