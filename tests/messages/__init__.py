"""All texts that the code can show a person, rendered with sample values into one page for reviewers."""
