from tacit.accounting import Account as Account
from tacit.accounting import Accountant as Accountant
from tacit.accounting import Ledger as Ledger
from tacit.accounting import account as account
from tacit.accounting import accountant as accountant
from tacit.calibration import Calibrated as Calibrated
from tacit.errors import BudgetExceeded as BudgetExceeded
from tacit.errors import InvalidInput as InvalidInput
from tacit.errors import LeakWarning as LeakWarning
from tacit.errors import Refused as Refused
from tacit.errors import TacitError as TacitError
from tacit.mechanisms import Exponential as Exponential
from tacit.mechanisms import Gaussian as Gaussian
from tacit.mechanisms import Laplace as Laplace
from tacit.mechanisms import Mechanism as Mechanism
from tacit.relation import Relation as Relation
from tacit.standing import Standing as Standing
from tacit.tradeoff import Advantage as Advantage
from tacit.tradeoff import Epsilon as Epsilon
from tacit.tradeoff import Errors as Errors
from tacit.tradeoff import Mu as Mu
from tacit.tradeoff import Target as Target
from tacit.tradeoff import TradeOff as TradeOff

__version__: str
