"""What can be asked of a table, one file per aggregate: its bound, its integers per row, its columns, SQL and words.

A new aggregate is a file here and its entries in `registry`. Its building blocks: `terms` describe the integers of a
row that an engine sums, `measurement` what a mechanism gets to see, `aggregate` everything else that the flow asks.
"""
