"""Two Iceberg tables that follow a table of a lake: as it is, and with all that it ever was."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
LAKE = spark.conf.get("shop.lake")


@dp.temporary_view
def order_upserts() -> DataFrame:
    """The last row of each key in the batch."""
    stream = spark.readStream.format("headrace").options(lake=LAKE, table="public.orders")
    return stream.option("as", "upserts").load()


@dp.temporary_view
def order_changes() -> DataFrame:
    """Each row that came or went: an update is a delete and then an insert, at one `_sequence`."""
    stream = spark.readStream.format("headrace").options(lake=LAKE, table="public.orders")
    rows = stream.option("as", "changes").load()
    return rows.selectExpr("*", "struct(_sequence, _diff) AS _at")


dp.create_streaming_table("orders")
dp.create_auto_cdc_flow(
    target="orders",
    source="order_upserts",
    keys=["id"],
    sequence_by="_sequence",
    apply_as_deletes="_op = 'delete'",
    except_column_list=["_op", "_sequence"],
    stored_as_scd_type=1,
)

dp.create_streaming_table("orders_history")
dp.create_auto_cdc_flow(
    target="orders_history",
    source="order_changes",
    keys=["id"],
    sequence_by="_at",
    apply_as_deletes="_diff = -1",
    except_column_list=["_time", "_diff", "_op", "_sequence", "_at"],
    stored_as_scd_type=2,
)
