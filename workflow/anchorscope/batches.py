"""Which examples are computed together: a fixed plan, so that a rerun repeats every rounding."""


def plan_batches(lengths: list[int], rows: list[int], budget: int) -> list[list[int]]:
    """Group examples of similar length so that rows x longest length stays within `budget` tokens.

    `lengths[i]` and `rows[i]` are the tokens of example i's longest row and its number of rows. An
    example that alone exceeds the budget makes a batch of its own. Longest first, so that a lack
    of memory shows at once and not at the end.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    plan: list[list[int]] = []
    filled = 0
    for index in order:
        longest = lengths[plan[-1][0]] if plan else 0
        if plan and longest * (filled + rows[index]) <= budget:
            plan[-1].append(index)
            filled += rows[index]
        else:
            plan.append([index])
            filled = rows[index]
    return plan
