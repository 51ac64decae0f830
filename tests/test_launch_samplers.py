import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "launch" / "samplers.sh"


def run(*arguments, **environment):
    return subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, env=os.environ | environment
    )


def commands(done):
    """Without the interpreter."""
    assert done.returncode == 0, done.stderr
    return sorted(line.split(" ", 1)[1].strip() for line in done.stdout.splitlines())


def test_print_shows_one_sampler_a_server():
    done = run("--print", "s3://bucket/run", "http://a:1", "http://b:2", "--", "--groups", "3")
    first, second = commands(done)
    assert first.startswith("-m jax_t2sql.sample --bus s3://bucket/run --policy vllm:http://a:1")
    assert "vllm:http://b:2" in second
    assert first.endswith("--groups 3") and second.endswith("--groups 3")
    assert first.split("--name ")[1] != second.split("--name ")[1]


def test_print_shows_a_server_of_its_own_for_each_gpu():
    found = commands(run("--print", "/bus", GPUS="0 3", VLLM_PYTHON="/v/bin/python"))
    assert [line.split("vllm:")[1].split()[0] for line in found] == [
        "http://127.0.0.1:8100",
        "http://127.0.0.1:8103",
    ]
    assert all("--spawn-vllm --vllm-python /v/bin/python" in line for line in found)


def test_without_a_bus_or_a_server_it_says_how_to_use_it():
    for arguments in ((), ("--print",), ("/bus",)):
        done = run(*arguments, GPUS="")
        assert done.returncode == 2 and "launch/samplers.sh BUS" in done.stderr
