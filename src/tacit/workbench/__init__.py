"""A local workbench in the browser: runs, a calculator, jobs and cards, on 127.0.0.1 and with no external request."""

from tacit.workbench.server import application, serve

__all__ = ["application", "serve"]
