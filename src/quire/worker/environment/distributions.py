"""The PyPI package of each well-known module. Others are not guessed, since a package of the same name may be a
different one."""

from __future__ import annotations

_OTHER_NAMES = """
    Bio biopython
    Crypto pycryptodome
    Levenshtein levenshtein
    MySQLdb mysqlclient
    OpenSSL pyopenssl
    PIL pillow
    attr attrs
    bs4 beautifulsoup4
    cv2 opencv-python-headless
    dateutil python-dateutil
    dns dnspython
    docx python-docx
    dotenv python-dotenv
    faiss faiss-cpu
    fitz pymupdf
    git gitpython
    imblearn imbalanced-learn
    jose python-jose
    jwt pyjwt
    magic python-magic
    mpl_toolkits matplotlib
    nacl pynacl
    nest_asyncio nest-asyncio
    pkg_resources setuptools
    pptx python-pptx
    psycopg2 psycopg2-binary
    sentence_transformers sentence-transformers
    serial pyserial
    skimage scikit-image
    sklearn scikit-learn
    slugify python-slugify
    snappy python-snappy
    umap umap-learn
    usb pyusb
    websocket websocket-client
    win32api pywin32
    yaml pyyaml
    zmq pyzmq
"""
_SAME_NAMES = """
    aiofiles aiohttp altair anthropic bokeh boto3 botocore catboost certifi chardet click cryptography cvxpy cython dask
    datasets django duckdb fastapi fastavro filelock flask folium fsspec gensim geopandas h5py httpx hypothesis imageio
    ipywidgets jinja2 joblib jsonschema keras lightgbm llvmlite loguru lxml markdown matplotlib mpmath msgpack
    multidict networkx nltk numba numexpr numpy openai openpyxl optuna orjson packaging pandas paramiko patsy
    pdfplumber pendulum pint plotly polars psutil psycopg pyarrow pydantic pygments pymongo pymysql pyparsing pypdf
    pyproj pytest pytz rasterio redis regex requests rich rpy2 scipy scrapy seaborn selenium setuptools shapely simpy
    six sortedcontainers spacy sqlalchemy starlette statsmodels streamlit sympy tabulate tenacity tensorflow termcolor
    tiktoken tokenizers toml tomli torch torchaudio torchvision tornado tqdm transformers typer ujson urllib3 uvicorn
    websockets werkzeug wheel wordcloud xarray xgboost xlrd xlsxwriter yfinance
"""
BY_MODULE = {
    **{name: name for name in _SAME_NAMES.split()},
    **dict(line.split() for line in _OTHER_NAMES.strip().splitlines()),
}
