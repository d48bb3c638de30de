"""What the plain guest promises, this one keeps: its tests, run on this guest, but for those that are about how it is
built."""

from __future__ import annotations

from tests.wasm.python import (
    test_bounds,
    test_capabilities,
    test_cells,
    test_files,
    test_hostile,
    test_images,
    test_library,
)
from tests.wasm.python.test_capabilities import offered

MODULES = (test_bounds, test_capabilities, test_cells, test_files, test_hostile, test_images, test_library)
__all__ = ["offered"]
OTHERWISE = {
    # which have tests of their own beside this file, with more memory, or other words for the same
    "test_memory_that_is_used_up_is_an_error_and_the_state_is_kept",
    "test_a_cell_after_one_that_took_all_memory_in_crumbs_can_free_it",
    "test_what_fills_all_memory_can_be_deleted_by_the_next_cell",
    "test_an_image_larger_than_the_limit_is_refused",
    "test_a_guest_put_back_has_nothing_of_what_it_was_since",
    "test_what_is_no_word_ends_the_guest",
    "test_a_run_ends_once_and_under_its_own_name",
    "test_what_cannot_be_says_so",
    # its memory is looked at in another way, and none is made ahead
    "test_the_pages_that_the_system_says_were_written_are_those_that_differ",
    "test_where_the_system_does_not_show_memory_it_is_summed",
    "test_a_guest_that_was_made_ahead_has_its_own_limits",
    # its library comes without its source
    "test_a_traceback_has_the_librarys_source",
    "test_the_librarys_source_can_be_read",
    # it has another library
    "test_every_module_is_there_or_says_why_not",
}
SAME = {
    name: test
    for module in MODULES
    for name, test in vars(module).items()
    if name.startswith("test_") and name not in OTHERWISE
}
globals().update(SAME)


def test_every_exception_is_of_a_test_that_is_there() -> None:
    assert all(any(hasattr(module, name) for module in MODULES) for name in OTHERWISE)
