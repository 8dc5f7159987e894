"""Helper processes, with limits of time and memory, for native code that works on other people's files. It may import
`engine.core` and knows no model, no tokenizer and no grammar: the programs that helpers run lie in the rooms that use them."""
