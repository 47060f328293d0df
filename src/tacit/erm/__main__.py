"""`python -m tacit.erm`: the counter-example table of input perturbation as published."""

from tacit.erm.refutation import counter_examples, text

print(text(counter_examples()))
