from tests.ralph import ralph as ralph
