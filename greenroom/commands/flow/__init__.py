"""`greenroom flow`: graphs of nodes that runs walk. Each command stands in a module of its own."""
