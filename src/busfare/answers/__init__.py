"""What each question is answered with: one file a question.

It may import `advise`, `jobs`, `planning` and whatever they import. It gives Structs of ids and figures in seconds and
bytes. How an answer looks on a terminal or a page belongs in `show`.
"""
