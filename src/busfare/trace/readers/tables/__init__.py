"""Tables in SQLite files and directories, as columns."""
