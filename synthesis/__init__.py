"""Long documents made to measure: questions of known data sets, their gold documents hidden among others.

``raw_rows`` reads one row of a data set, ``corpora`` whole files, ``haystack`` chooses documents and their order.
``eval_files`` and ``training_set`` write what comes of it; ``download`` fetches the published evaluation files;
``closed_book`` finds the questions that need no document at all.
"""
