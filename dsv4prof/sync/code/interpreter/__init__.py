"""Runs functions on values instead of numbers: once each, along every path, and notes what makes the host wait."""
