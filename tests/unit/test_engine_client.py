"""The client of the engine's API."""

from __future__ import annotations

import socket
import threading

import pytest
from engine_server import Engine, serve

from ansible_collections.sparkwright.cluster.plugins.module_utils.engine_client import (
    Counters,
    EngineError,
    counters,
    generate,
    key_of,
    parse_counters,
    stream,
)

# From a real vLLM 0.32 with a draft of two tokens in its configuration, without the lines that nobody reads.
METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 5.0
vllm:prompt_tokens_created{engine="0",model_name="tiny"} 1.796057541205252e+09
vllm:generation_tokens_total{engine="0",model_name="tiny"} 1.2e+06
vllm:generation_tokens_total{engine="1",model_name="tiny"} 1.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="1"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"} 9.0
"""


@pytest.mark.parametrize(
    ("executor", "text", "found"),
    [
        ("mp", METRICS, Counters(1200001.0, 5.0, 3, 10.0, (9.0, 4.0))),
        ("ray", "vllm:generation_tokens_total 3\n", Counters(3.0, 0.0, 0)),
        (
            "llamacpp",
            "llamacpp:prompt_tokens_total 7\nllamacpp:tokens_predicted_total 2\nllamacpp:requests_processing 1\n",
            Counters(2.0, 7.0, 1),
        ),
    ],
    ids=["vLLM", "least", "llama.cpp"],
)
def test_the_counters_are_those_of_the_engine(executor, text, found):
    assert parse_counters(text, executor) == found


def test_metrics_without_a_counter_are_an_error():
    with pytest.raises(EngineError, match="has no count of generated tokens"):
        parse_counters("process_cpu_seconds_total 3\n", "mp")


def test_an_answer_has_its_text_and_its_number_of_tokens():
    engine = Engine()
    with serve(engine) as url:
        answer = generate(url, "tiny", "hello you", tokens=3, timeout=5)
        assert counters(url, "mp", timeout=5).generated == 103
    assert (answer.text, answer.tokens, answer.prompt_tokens) == ("four sparks", 3, 2)
    (asked,) = engine.asked
    assert (asked["temperature"], asked["ignore_eos"], asked["max_tokens"]) == (0, True, 3)


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{"text": "x"}]}, []])
def test_what_is_no_completion_is_an_error(body):
    with serve(Engine(body=body)) as url, pytest.raises(EngineError, match="is no completion"):
        generate(url, "tiny", "hello", tokens=3, timeout=5)


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"],
    ids=["something else", "an engine that died"],
)
@pytest.mark.parametrize("ask", [generate, stream])
def test_an_answer_that_is_no_http_or_ends_early_is_an_error_as_any_other(ask, answer):
    """Whoever asks in a thread would otherwise lose the thread, and look no more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            connection = server.accept()[0]
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises((OSError, EngineError)):
            ask(f"http://127.0.0.1:{server.getsockname()[1]}", "tiny", "hello", tokens=1, timeout=5)
        thread.join()


def test_a_stream_has_the_time_of_each_piece():
    with serve(Engine()) as url:
        answer = stream(url, "tiny", "hello", tokens=3, timeout=5)
    assert (len(answer.at), answer.tokens, answer.whole) == (3, 3, True)
    assert list(answer.at) == sorted(answer.at)


@pytest.mark.parametrize(("text", "key"), [("", None), ("VLLM_API_KEY=\n", None), ("VLLM_API_KEY=a=b\n", "a=b")])
def test_the_key_of_a_file(tmp_path, text, key):
    (tmp_path / "api.env").write_text(text)
    assert key_of(str(tmp_path / "api.env")) == key


def test_no_file_is_no_key(tmp_path):
    assert key_of(str(tmp_path / "none")) is None
