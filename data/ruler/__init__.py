"""RULER's thirteen synthetic long-context tasks, made offline at any length; ``evaluation.make_ruler`` is the command.

``length`` grows a document to a number of tokens, ``wording`` has the sentences around it, ``sample`` what all tasks
share; ``needles``, ``word_counts`` and ``document_qa`` are the tasks, and ``tasks`` makes any of them.
"""
