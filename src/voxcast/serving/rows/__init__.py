"""Rows of questions and answers: from images, JSON, tables and files, checked."""
