"""tools/hollow-checkpoint: what it writes is, to `dodona inspect`, a whole checkpoint that fits its configuration."""

import os
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/hollow-checkpoint"
COMMAND = os.environ.get("DODONA_COMMAND")

pytestmark = pytest.mark.skipif(not COMMAND, reason="DODONA_COMMAND says where dodona is")


def hollow(folder, *words):
    return subprocess.run([sys.executable, TOOL, folder, "--preset", "tiny", "--dodona", COMMAND, *words], capture_output=True, text=True)


def test_every_tensor_fits_the_configuration_over_several_shards_that_hold_next_to_nothing(tmp_path):
    made = hollow(tmp_path / "model", "--shard-gb", "0.002")
    assert made.returncode == 0, made.stderr
    shards = list((tmp_path / "model").glob("*.safetensors"))
    assert len(shards) > 1 and f"in {len(shards)} shards" in made.stdout
    inspected = subprocess.run([COMMAND, "inspect", tmp_path / "model"], capture_output=True, text=True)
    assert inspected.returncode == 0 and "every tensor fits the configuration" in inspected.stdout
    held = sum(shard.stat().st_blocks * 512 for shard in shards)
    assert held < sum(shard.stat().st_size for shard in shards)
    next(iter(shards)).unlink()
    assert subprocess.run([COMMAND, "inspect", tmp_path / "model"], capture_output=True).returncode == 2


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "kept").write_text("mine")
    refused = hollow(tmp_path)
    assert refused.returncode != 0 and "no empty folder" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
