"""Which layers are planned for a machine, what a setting insists on, and how it is told."""

from __future__ import annotations

import pytest

from quire.core.errors import InvalidRequest
from quire.core.limits.sandbox_layers import LAYERS, describe_layers, required_layers
from quire.core.model import Layer
from quire.runtimes.sandbox.plan import MachineFeatures, Plan, plan_layers

ABLE = MachineFeatures(landlock=6)
NAMESPACES = ("user", "mount", "pid", "net", "ipc")


def off(found: Plan) -> dict[str, str]:
    return {layer.name: layer.why_not for layer in found.layers if layer.why_not}


def test_capable_machine_has_all_layers() -> None:
    found = plan_layers(ABLE, "auto")
    assert [layer.name for layer in found.layers] == list(LAYERS) and off(found) == {}
    assert found.landlock == 6 and found.any_active
    assert found.worker_layers == ["mount", "rlimits", "capabilities", "no_new_privs", "landlock", "seccomp"]


@pytest.mark.parametrize(
    ("machine", "missing"),
    [
        (MachineFeatures(landlock=6, cgroup="not mounted"), {"cgroup": "not mounted"}),
        (MachineFeatures(landlock=6, uid="only root"), {"uid": "only root"}),
        (MachineFeatures(landlock=6, seccomp="not built in"), {"seccomp": "not built in"}),
        (MachineFeatures(), {"landlock": "this system has no Landlock"}),
        (
            MachineFeatures(landlock=6, namespaces="EPERM", uid="EPERM"),
            {**dict.fromkeys(NAMESPACES, "EPERM"), "uid": "EPERM"},
        ),
    ],
)
def test_missing_feature_turns_its_layers_off(machine: MachineFeatures, missing: dict[str, str]) -> None:
    found = plan_layers(machine, "auto")
    assert off(found) == missing
    assert not any(found.has(name) for name in missing)
    assert all(found.has(name) for name in LAYERS if name not in missing)
    assert set(found.worker_layers).isdisjoint(missing)


@pytest.mark.parametrize("name", LAYERS)
def test_required_missing_layer_is_named(name: str) -> None:
    lacking = MachineFeatures(cgroup="no group", namespaces="no namespace", uid="no uid", seccomp="no filter")
    if name in ("rlimits", "capabilities", "no_new_privs"):  # every Linux has these
        assert plan_layers(lacking, f"require:{name}").has(name)
        return
    with pytest.raises(InvalidRequest) as refused:
        plan_layers(lacking, f"require:{name}")
    assert f" give: {name} (" in str(refused.value) and "`quire doctor`" in str(refused.value)
    assert "no " in str(refused.value)


def test_require_all_names_only_missing_layers() -> None:
    assert plan_layers(ABLE, "require:all") == plan_layers(ABLE, "auto")
    with pytest.raises(InvalidRequest, match=r"give: cgroup \(none\); uid \(only root\)\. `quire doctor`"):
        plan_layers(MachineFeatures(landlock=1, cgroup="none", uid="only root"), "require:all")
    assert not plan_layers(MachineFeatures(landlock=1, cgroup="none"), "require:pid,net").has("cgroup")


def test_off_disables_all_layers() -> None:
    found = plan_layers(ABLE, "off")
    assert off(found) == dict.fromkeys(LAYERS, "the setting sandbox.mode is off")
    assert not found.any_active and found.worker_layers == [] and found.landlock == 0


def test_features_are_read_from_the_workers_probe() -> None:
    said = {"namespaces": "", "uid": "only root", "landlock": 3, "seccomp": ""}
    assert MachineFeatures.from_probe(said, "no group") == MachineFeatures(
        cgroup="no group", uid="only root", landlock=3
    )


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("auto", ()),
        ("off", ()),
        ("require:all", LAYERS),
        ("require:pid, net", ("pid", "net")),
        ("require:seccomp", ("seccomp",)),
    ],
)
def test_layers_required_by_a_setting(wanted: str, names: tuple[str, ...]) -> None:
    assert required_layers(wanted) == names


@pytest.mark.parametrize("wanted", ["", "on", "require", "require:", "auto:pid", "off:all", "Require:pid"])
def test_invalid_setting_names_the_valid_ones(wanted: str) -> None:
    with pytest.raises(ValueError, match="it is auto, off, or require: and layers"):
        required_layers(wanted)


def test_unknown_layer_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="there is no layer gpu, vm; there are cgroup, user, "):
        required_layers("require:pid,gpu,vm")


def test_sentence_about_layers() -> None:
    assert describe_layers([Layer("pid"), Layer("net")]) == "pid, net"
    assert describe_layers(
        [Layer("pid"), Layer("uid", "only root"), Layer("cgroup", "only root"), Layer("net", "no")]
    ) == ("pid; off: uid, cgroup (only root); net (no)")
    assert describe_layers(plan_layers(ABLE, "off").layers) == (
        "none: cells run with the rights of the server's user (the setting sandbox.mode is off)"
    )
    assert describe_layers([]) == "none: cells run with the rights of the server's user"
