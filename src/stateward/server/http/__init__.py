"""HTTP: decoding of bodies, parameters, preconditions, headers, problem documents, and the fast path of hot routes."""
