"""Choose the noise from what an attack may reach, instead of from an epsilon."""

from tacit import Advantage, Epsilon, Errors, Gaussian, accountant
from tacit.calibration import noise_multiplier, smallest

SAMPLE_RATE, STEPS = 0.01, 1000

targets = {
    "epsilon <= 2 at delta = 1e-5": Epsilon(2.0, delta=1e-5),
    "advantage <= 10 %": Advantage(0.1),
    "TPR <= 5 % at FPR = 1 %": Errors(alpha=0.01, beta=0.95),
}
for words, target in targets.items():
    found = noise_multiplier(target, sample_rate=SAMPLE_RATE, steps=STEPS)
    curve = found.guarantee
    print(
        f"{words:<30} noise multiplier {found.value:.3f}, epsilon {curve.epsilon(1e-5):.2f}, "
        f"advantage {curve.advantage():.3f}, TPR at 1 % {curve.tpr(0.01):.3f}"
    )

# Any parameter: the noise of one Gaussian release beside the training above.
training = Gaussian(1.5).poisson(SAMPLE_RATE) * STEPS
found = smallest("noise_multiplier", lambda noise: training + Gaussian(noise), Advantage(0.3))
print(f"a release beside the training needs a noise multiplier of {found.value:.2f}")
assert accountant("pld")(training + Gaussian(found.value)).advantage() <= 0.3
