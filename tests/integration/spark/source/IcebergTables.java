import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.spark.Spark3Util;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Iceberg's tables in a folder, without its views. */
public class IcebergTables implements TableCatalog, SupportsNamespaces {
  private final HadoopCatalog tables = new HadoopCatalog();
  private String name;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    tables.setConf(new Configuration());
    tables.initialize(name, Map.of("warehouse", options.get("warehouse")));
  }

  @Override
  public String name() {
    return name;
  }

  private static TableIdentifier in(Identifier table) {
    return TableIdentifier.of(Namespace.of(table.namespace()), table.name());
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    return tables.listTables(Namespace.of(namespace)).stream()
        .map(each -> Identifier.of(each.namespace().levels(), each.name()))
        .toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    try {
      return new Rows(tables.loadTable(in(table)));
    } catch (org.apache.iceberg.exceptions.NoSuchTableException gone) {
      throw new NoSuchTableException(table);
    }
  }

  @Override
  public Table createTable(Identifier table, Column[] columns, Transform[] parts, Map<String, String> properties) {
    Map<String, String> kept = new HashMap<>(properties);
    Arrays.asList("provider", "owner", "location", "is_managed_location").forEach(kept::remove);
    var schema = SparkSchemaUtil.convert(CatalogV2Util.v2ColumnsToStructType(columns));
    return new Rows(tables.buildTable(in(table), schema).withProperties(kept).create());
  }

  @Override
  public Table createTable(Identifier table, TableInfo info) {
    return createTable(table, info.columns(), info.partitions(), info.properties());
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    var found = tables.loadTable(in(table));
    for (TableChange change : changes) {
      if (change instanceof TableChange.SetProperty set) {
        found.updateProperties().set(set.property(), set.value()).commit();
      } else if (change instanceof TableChange.RemoveProperty gone) {
        found.updateProperties().remove(gone.property()).commit();
      } else {
        Spark3Util.applySchemaChanges(found.updateSchema(), Arrays.asList(change)).commit();
      }
    }
    return loadTable(table);
  }

  @Override
  public boolean dropTable(Identifier table) {
    return tables.dropTable(in(table), true);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    tables.renameTable(in(from), in(to));
  }

  @Override
  public String[][] listNamespaces() {
    return tables.listNamespaces().stream().map(Namespace::levels).toArray(String[][]::new);
  }

  @Override
  public String[][] listNamespaces(String[] above) {
    return tables.listNamespaces(Namespace.of(above)).stream().map(Namespace::levels).toArray(String[][]::new);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!tables.namespaceExists(Namespace.of(namespace))) {
      throw new NoSuchNamespaceException(namespace);
    }
    return tables.loadNamespaceMetadata(Namespace.of(namespace));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    tables.createNamespace(Namespace.of(namespace));
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw new UnsupportedOperationException("namespaces are folders");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    return tables.dropNamespace(Namespace.of(namespace));
  }

  /** Spark 4.3 makes columns by a method of another signature. */
  private static class Rows extends SparkTable {
    Rows(org.apache.iceberg.Table table) {
      super(table);
    }

    @Override
    public Column[] columns() {
      return CatalogV2Util.structTypeToV2Columns(schema(), false);
    }
  }
}
