"""One file per other project's habit; each needs that project, which an extra installs."""
