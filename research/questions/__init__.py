"""Builds test datasets from documentation: questions of FAQs and how-to questions, judged by section."""
