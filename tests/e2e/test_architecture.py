"""docs/architecture.md says what the code says."""

from __future__ import annotations

import grimp
import pytest

from fixtures.rooms import MANY, PAGE, drawing, drawn, reduced, rooms, with_drawing


def graph_of(*imports: tuple[str, str]) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    for names in imports:
        for name in names:
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                graph.add_module(".".join(parts[:end]))
        graph.add_import(importer=names[0], imported=names[1])
    return graph


def test_the_drawing_of_the_rooms_is_what_the_imports_say_now() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_drawing(page, drawn()), "run `make picture` and commit what it writes"


def test_a_new_import_between_rooms_is_a_new_arrow_at_whatever_depth() -> None:
    graph = graph_of(
        ("amux.launcher.steps.plan", "amux.launcher.process.spawn"),
        ("amux.launcher.launch", "amux.launcher.steps.plan"),
        ("amux.launcher.steps.deep.down", "amux.hub.client"),
    )
    found = rooms(graph)
    assert found.boxes["amux.launcher"] == (
        "amux.launcher.launch",
        "amux.launcher.process",
        "amux.launcher.steps",
    )
    assert found.arrows == {
        ("amux.launcher.launch", "amux.launcher.steps"),
        ("amux.launcher.steps", "amux.launcher.process"),
        ("amux.launcher.steps", "amux.hub.client"),
    }
    graph.add_module("amux.hub.server.app")
    graph.add_module("amux.hub.server")
    graph.add_import(importer="amux.hub.server.app", imported="amux.hub.client")
    before = drawing(found, graph)
    after = drawing(rooms(graph), graph)
    assert "hub_server --> hub_client" not in before
    assert "hub_server --> hub_client" in after


def test_the_modules_of_a_package_that_has_many_share_a_box() -> None:
    names = [f"amux.hub.module{number}" for number in range(MANY + 1)]
    graph = graph_of(*((name, "amux.hub.server.app") for name in names))
    found = rooms(graph)
    assert found.boxes == {"amux.hub": ("amux.hub.server", "amux.hub.…")}
    assert found.arrows == {("amux.hub.…", "amux.hub.server")}


@pytest.mark.parametrize(
    ("arrows", "left"),
    [
        ({"ab", "bc", "ac"}, {"ab", "bc"}),
        ({"ab", "ac"}, {"ab", "ac"}),
        ({"ab", "ba"}, {"ab", "ba"}),
        ({"ab", "ba", "bc", "ac"}, {"ab", "ba", "bc", "ac"}),
        ({"ab", "ba", "bc", "cd", "ad"}, {"ab", "ba", "bc", "cd"}),
    ],
)
def test_an_arrow_that_a_longer_way_says_is_left_out(arrows: set[str], left: set[str]) -> None:
    drawn = reduced(frozenset((one[0], one[1]) for one in arrows))
    assert {begin + end for begin, end in drawn} == left


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks"):
        with_drawing("# Architecture\n", "drawing")
