"""The page that shows what was found, its figures and the evidence behind them."""
