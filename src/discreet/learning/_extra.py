"""Imported first, so that without torch there is one line that says what to install."""

from discreet.errors import MissingExtra

try:
    import torch
except ModuleNotFoundError as error:
    raise MissingExtra("private training needs torch: pip install 'discreet[learning]'") from error
try:
    import cryptography as cryptography
except ModuleNotFoundError as error:
    raise MissingExtra("private training needs cryptography: pip install 'discreet[learning]'") from error

#: The version that was found.
TORCH = torch.__version__
