from transduce.search.history import History


def test_a_hypothesis_is_read_back_through_the_rows_it_came_from() -> None:
    history = History()
    history.append([0, 0], [7, 8], [-0.1, -0.2])
    history.append([1, 0], [5, 6], [-0.3, -0.4])  # the rows cross
    assert len(history) == 2
    hypothesis = history.end(0, 1, -0.5, alpha=0.0)
    assert hypothesis.ids == [8, 5, 1]
    assert hypothesis.token_scores == [-0.2, -0.3, -0.5]
    assert history.end(1, 1, -0.5, alpha=0.0).ids == [7, 6, 1]


def test_a_hypothesis_may_be_the_end_alone() -> None:
    assert History().end(3, 1, -0.5, alpha=0.6).ids == [1]
