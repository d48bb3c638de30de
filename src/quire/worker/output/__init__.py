"""What cells show: MIME bundles, image previews and tables."""
