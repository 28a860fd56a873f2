"""How answers look: documents of blocks, shown on a terminal or as a page with pictures.

It may import `answers` and whatever they import. It gives documents and text.
What is computed from a trace or a node belongs in `answers` or below.
"""
