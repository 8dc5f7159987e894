"""The tests that are listed for a second and a third try if they fail. No other test is run again."""

from __future__ import annotations

# test -> what it waits for that this project does not control
AGAIN = {
    "app/test_interrupts.py::test_an_interrupt_inside_a_pass": "a signal must meet a pass",
    "app/test_keyboard.py::test_run_step_go_on_pause_read_the_card_stop": "a key must meet a run that goes on",
    "app/test_load.py::test_a_hundred_visitors_find_a_bounded_queue_and_then_room_again": "a hundred connections at once",
    "app/test_page.py::test_a_run_is_seen_arriving_step_by_step_and_stopped": "a click must meet a run that goes on",
    "app/test_reattach.py::test_many_clicks_make_one_run": "clicks that come faster than the page answers",
    "app/test_reattach.py::test_no_step_is_lost_on_a_page_that_was_away": "a browser decides when a page sleeps",
    "app/test_states.py::test_a_lost_stream_is_veiled_and_goes_on_from_its_last_step": "a connection is cut",
    "app/test_states.py::test_a_server_that_stays_away_is_named_with_what_to_do": "a server is away for seconds",
    "app/tabs/test_debugger.py::test_a_run_that_goes_pauses_at_a_breakpoint_and_goes_on_to_its_end": "a run must still go on",
    "notebooks/test_jupyterlab.py::test_a_chapter_lives_in_jupyterlab": "JupyterLab starts kernels of its own",
}
TRIES = 3  # tries of such a test
