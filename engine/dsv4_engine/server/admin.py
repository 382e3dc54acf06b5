"""The addresses for whoever runs the server: is it well, what is it, how busy, and its profiler."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dsv4_engine.request import SamplingParams
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.generation import Asked, Generation
from dsv4_engine.server.http import json_response, read_body, while_connected
from dsv4_engine.server.metrics import CONTENT_TYPE
from dsv4_engine.server.service import Outputs, Service

_HEALTH_GENERATE_S = 20.0
_MOST_PROFILE_BYTES = 1 << 20


async def health(service: Service, request: Request) -> Response:
    """Whether requests are taken; nothing is computed."""
    service.engine.require_serving()
    return json_response({"status": "ok"})


async def health_generate(service: Service, request: Request) -> Response:
    """Whether a token can be made, within seconds."""
    generation = Generation(
        prompt=(service.model.eos_token_ids[0],), max_new_tokens=1, sampling=SamplingParams(), ignore_eos=True
    )
    asked = Asked(generations=(generation,), n=1, stream=False, include_usage=False, continuous_usage=False)
    outputs = Outputs(service, asked)

    async def make() -> None:
        async with aclosing(outputs.deltas()) as deltas:
            async for _ in deltas:
                pass

    try:
        await while_connected(request, asyncio.wait_for(make(), _HEALTH_GENERATE_S))
    except asyncio.TimeoutError:
        raise ApiError(
            f"no token within {_HEALTH_GENERATE_S:g} s", status=503, type="server_error", code="slow"
        ) from None
    finally:
        outputs.close()
    return json_response({"status": "ok"})


async def models(service: Service, request: Request) -> Response:
    return json_response({"object": "list", "data": [_card(service, name) for name in service.model.names]})


async def model(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    if name not in service.model.names:
        raise ApiError(f"model {name[:100]!r} is not served here", status=404, param="model", code="model_not_found")
    return json_response(_card(service, name))


async def model_info(service: Service, request: Request) -> Response:
    """As SGLang tells it."""
    return json_response(
        {
            "model_path": service.info.get("model_path", service.model.name),
            "served_model_name": service.model.name,
            "is_generation": True,
        }
    )


async def server_info(service: Service, request: Request) -> Response:
    """Options, versions and sizes, and the engine's state under SGLang's name for it."""
    stats = await service.engine.stats()
    state: dict[str, Any] = {
        "num_running_reqs": stats.running,
        "num_waiting_reqs": stats.waiting,
        "num_pages": stats.num_pages,
        "free_pages": stats.free_pages,
        "cached_pages": stats.cached_pages,
    }
    if stats.accept_length is not None:
        state["avg_spec_accept_length"] = stats.accept_length
    return json_response(
        {
            "served_model_name": service.model.name,
            "context_length": service.model.context_len,
            **service.info,
            "internal_states": [state],
        }
    )


async def metrics(service: Service, request: Request) -> Response:
    text = service.metrics.text(await service.engine.stats(), model=service.model.name)
    return PlainTextResponse(text, media_type=CONTENT_TYPE)


async def flush_cache(service: Service, request: Request) -> Response:
    """Forget every prefix; refused while requests run."""
    if await service.engine.flush_cache():
        return json_response({"success": True, "message": "the prefix cache is empty"})
    return json_response(
        {"success": False, "message": "requests run or wait, and use what would be flushed"}, status=409
    )


async def profile(service: Service, request: Request) -> Response:
    """`/start_profile`, `/stop_profile` and `/profile_status`, answered by the recorder on a thread of its own."""
    routes = service.profile
    if routes is None:
        raise ApiError(
            "no recorder is attached to this server; start it with dsv4prof serve", status=501, type="server_error"
        )
    body = await read_body(request, most=_MOST_PROFILE_BYTES)
    status, answer = await asyncio.to_thread(routes.answer, request.method, request.url.path, body)
    return json_response(answer, status=status)


def _card(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.model.created,
        "owned_by": "dsv4prof",
        "max_model_len": service.model.context_len,
    }
