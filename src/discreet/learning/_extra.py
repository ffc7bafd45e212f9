"""Imported first: if torch or cryptography is missing, one line says what to install."""

from discreet.errors import MissingExtra

try:
    import torch as torch
except ModuleNotFoundError as error:
    raise MissingExtra("private training needs torch: pip install 'discreet[learning]'") from error
try:
    import cryptography as cryptography
except ModuleNotFoundError as error:
    raise MissingExtra("private training needs cryptography: pip install 'discreet[learning]'") from error
