"""The tour: attacks on data without names, in a terminal and as one page with pictures."""

from discreet.apps.tour.page import Shown, write_page

__all__ = ["Shown", "write_page"]
