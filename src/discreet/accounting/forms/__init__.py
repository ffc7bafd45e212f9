"""The price of an event in each form that adds up (pure DP, zCDP, RDP, GDP), and conversions between them."""
