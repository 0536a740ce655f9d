"""The methods of the API, one function each: a `Call` in, the JSON text of the answer out."""
