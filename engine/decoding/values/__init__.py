"""What passes between the parts of a step: chance, a draft and its verdict, what a prompt and a pass were."""
