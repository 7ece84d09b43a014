"""Exporter plugins of servetrace for Python programs."""
