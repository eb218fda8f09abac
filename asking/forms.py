"""The file in a form, as clients upload it (``multipart/form-data``)."""

from __future__ import annotations

from aiohttp import web

from .bodies import check_kind
from .request_error import RequestError


async def form_file(request: web.Request) -> tuple[str, str, bytes]:
    """Name, purpose and content of the file in a form. Raises RequestError."""
    check_kind(request, "multipart/form-data")
    try:
        form = await request.post()
    except ValueError as error:
        raise RequestError(400, f"the body is no form: {error}") from None
    file = form.get("file")
    if not isinstance(file, web.FileField):
        raise RequestError(400, "file: expected a file", param="file")
    return file.filename, str(form.get("purpose") or "user_data"), file.file.read()
