"""Marks as snapshots of Iceberg tables, over the data files that the lake has.

settings   where marks are exported to, and how often
shapes     columns and statistics as Iceberg writes them
contents   the tables that a mark shows, and the versions of their folders
manifests  the lists of data files that a snapshot shows
metadata   a table's metadata file: columns, snapshots, tags
catalog    a catalog, and SQL ones: all tables of a source in one transaction
rest       catalogs behind a server
access     opening a catalog, and what its errors mean
judgement  which of our rows there are as the last export left them
export     one mark into the catalog; attaching, rebuilding, detaching
watch      the thread that does so while a run lasts

No data file is written here, and no row is read.
"""
