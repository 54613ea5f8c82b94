"""The exceptions that Uncopy adds. All are RuntimeErrors, so that a caller who knows none of them
still catches them.
"""

__all__ = ["CaptureError", "StrictError", "VerifyError"]


class StrictError(RuntimeError):
    """A call needed what `strict=` forbids (a copy, a fallback, an extern, a replan, a miss).
    Nothing was run.
    """


class VerifyError(RuntimeError):
    """A checked run (`verify=n`) differs from eager. The message names the first operation whose
    result differs.
    """


class CaptureError(RuntimeError):
    """`uncopy.plan` could not capture a function as one graph without side effects. The message
    names the line.
    """
