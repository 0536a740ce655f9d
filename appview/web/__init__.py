"""The web page at `/` and what belongs to it: files, served as they are."""
