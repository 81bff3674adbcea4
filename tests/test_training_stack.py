"""The blocks of the page about training stacks run as printed, and its refusals are refusals."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from stringlib import CayleySTRING, LanguageModel, MultiHeadAttention, T5Bias, ViT

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "book" / "training_stack.md").read_text(encoding="utf8")
OPENING, *SECTIONS = re.split(r"(?m)^## ", PAGE)
BLOCK = re.compile(r"(?ms)^```python\n(.*?)^```")
(BEFORE,) = BLOCK.findall(OPENING)
BLOCKS = {text.partition("\n")[0]: BLOCK.findall(text) for text in SECTIONS}
PROCESSES = ("DDP", "FSDP2")
COMPILED = "torch.compile"
DECODED = "Decoding in ONNX"

pytestmark = pytest.mark.filterwarnings("ignore")  # of the tools, about themselves


def run(title: str) -> dict[str, Any]:
    """Run the block of a section after the lines of the opening, and return its names."""
    (code,) = BLOCKS[title]
    assert "assert" in code
    names: dict[str, Any] = {}
    for part in (BEFORE, code):
        exec(compile(part, title, "exec"), names)
    return names


def need(title: str) -> None:
    """Skip a test whose packages are not there: the extra ``test`` has them."""
    for name in re.findall(r"from (accelerate|peft)|import (onnxruntime)", BLOCKS[title][0]):
        pytest.importorskip("".join(name))


@pytest.mark.parametrize("title", [title for title in BLOCKS if title not in (COMPILED, DECODED)])
def test_a_block_runs_as_printed(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(title)
    monkeypatch.chdir(tmp_path)
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    if title in PROCESSES:
        for name, value in alone.items():
            monkeypatch.setenv(name, value)
    run(title)
    if title == "Accelerate":
        from accelerate.state import AcceleratorState

        AcceleratorState._reset_state(reset_partial_state=True)


def test_the_compiled_block_runs_as_printed() -> None:
    torch.compiler.reset()
    run(COMPILED)


def test_the_block_about_decoding_in_onnx_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(DECODED)
    monkeypatch.chdir(tmp_path)
    run(DECODED)


@pytest.mark.parametrize("title", PROCESSES)
def test_two_processes_run_a_block_as_printed(title: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(BEFORE + BLOCKS[title][0], encoding="utf8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*torchrun, program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_further_graph_is_compiled_for_longer_texts_or_other_prompts() -> None:
    torch.compiler.reset()
    counters.clear()
    model = LanguageModel(64, 16, 1, 2, encoder="circulant")
    model.compile(backend="eager", fullgraph=True, dynamic=True)
    for prompt, count in ((5, 3), (5, 12), (9, 6)):
        model.generate(torch.zeros(2, prompt, dtype=torch.int64), count)
        assert counters["stats"]["unique_graphs"] == 4


def test_the_loss_of_a_packed_row_is_that_of_its_documents() -> None:
    names = run("Packed sequences")
    model, row = names["model"], names["row"]
    parts = [(names["step"](model, row[:, a:b])[0], b - a - 1) for a, b in ((0, 12), (12, 33))]
    mean = sum(loss * count for loss, count in parts) / 31
    torch.testing.assert_close(names["loss"].detach(), mean)


def test_a_compiled_core_gives_the_values_of_its_layer() -> None:
    layer = MultiHeadAttention(16, 2, encoder="rope")
    compiled, x = copy.deepcopy(layer), torch.randn(2, 5, 16)
    compiled.core = torch.compile(compiled.core, backend="eager")
    torch.testing.assert_close(compiled(x), layer(x))


def test_what_the_page_says_of_adapters() -> None:
    peft = pytest.importorskip("peft")
    names = run("LoRA with peft")
    model, tokens, step = (names[name] for name in ("model", "tokens", "step"))

    def adapted(model: nn.Module, **options: Any) -> Any:
        return peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=4, **options))

    with pytest.raises(ValueError, match="to be folded"):
        adapted(model, target_modules=["to_q"]).folded()
    with pytest.raises(TypeError, match="encoder must be"):
        adapted(model, target_modules=["to_q"], modules_to_save=["encoder"])
    vit, images = (
        ViT(8, 4, classes=3, dim=16, depth=1, heads=2, encoder="learned"),
        torch.randn(2, 1, 8, 8),
    )
    saved = adapted(vit, target_modules=["to_q"], modules_to_save=["absolute"])
    torch.testing.assert_close(saved(images), vit(images))
    before = dict(model.named_parameters())
    trained = {name for name, p in names["merged"].named_parameters() if not p.equal(before[name])}
    assert {name.split(".")[-2] for name in trained} == {*names["names"], "encoder"}
    for tied in (False, True):
        bare = LanguageModel(64, 16, 1, 2, encoder="circulant", tied=tied)
        every = adapted(bare, target_modules="all-linear")
        optimizer = torch.optim.AdamW(every.parameters(), lr=1e-2)
        for _ in range(2):
            step(every, tokens)
            optimizer.step()
        found = every(tokens)
        difference = (every.merge_and_unload()(tokens) - found).abs().max()
        assert (difference > 0.1) == tied


def test_a_step_of_opacus_is_a_plain_step() -> None:
    opacus = pytest.importorskip("opacus")
    names = run("Gradients of each sequence")
    tokens, each = names["tokens"], names["each"]  # of the model before any step
    plain = copy.deepcopy(names["model"])
    model = LanguageModel(vocab=64, dim=16, depth=2, heads=2, encoder="circulant")
    model.load_state_dict(plain.state_dict())
    _, optimizer, _ = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(tokens, batch_size=4),
        noise_multiplier=0.0,
        max_grad_norm=1e6,
        poisson_sampling=False,
        grad_sample_mode="no_op",
    )
    for name, p in model.named_parameters():
        p.grad_sample = each[name]
    optimizer.step()
    names["step"](plain, tokens)
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    torch.testing.assert_close([*model.parameters()], [*plain.parameters()])


def test_averaged_integers_are_what_the_page_says() -> None:
    """If PyTorch no longer truncates them, the page need not warn of them."""
    averages = torch.optim.swa_utils
    for make in (lambda: CayleySTRING(16), lambda: T5Bias(2)):
        model, found = make(), []
        for told in (False, True):
            mean = averages.get_ema_multi_avg_fn(0.9)
            averaged = averages.AveragedModel(model, multi_avg_fn=mean, use_buffers=told)
            for _ in range(5):
                averaged.update_parameters(model)
            pairs = zip(averaged.module.buffers(), model.buffers(), strict=True)
            found.append(all(torch.equal(a, b) for a, b in pairs))
        assert found == [True, False]


def test_folding_is_refused_where_the_page_says_so() -> None:
    names = run("Int8 weights")
    bare, models = names["model"], [names["quantised"]]
    models.append(torch.ao.quantization.quantize_dynamic(bare, {nn.Linear}, dtype=torch.qint8))
    hidden = copy.deepcopy(bare)
    hidden.blocks[0] = nn.Sequential(hidden.blocks[0])
    for model in (*models, hidden):
        with pytest.raises(ValueError, match="to be folded"):
            model.folded()


def test_offloaded_encoders_and_foldings_are_refused() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = LanguageModel(64, 16, 1, 2, encoder="circulant")
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    accelerate.cpu_offload(model, torch.device("cpu"))
    with pytest.raises(ValueError, match="preload_module_classes"):
        model(tokens)
    with pytest.raises(ValueError, match="to be folded"):
        model.folded()
