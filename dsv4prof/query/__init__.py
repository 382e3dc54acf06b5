"""Questions in SQL: to Perfetto's own importer about a file, and to DuckDB about a merged trace."""
