"""How well searches rank: questions with known answers, asked of the code that serves."""
